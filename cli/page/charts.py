"""The charts: Bokeh figures on one axis of time, as the JSON that its own JavaScript draws."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from rdmascope.dissect.units import at_least, bound, duration

from .over_time import PERCENTS, PeakSeries, Series

UNITS = ((7_200, 3600.0, "hours"), (300, 60.0, "minutes"), (0.5, 1.0, "seconds"), (0, 0.001, "milliseconds"))
"""Seconds of a capture from which on the axis has this unit, its seconds, and its name."""
LEFT = 72
"""Pixels beside the charts: so that all begin at one place."""
SHADES = 256
FAR = 4
"""A limit so many times as high as what was ever in use is said, not drawn."""


def library() -> str:
    """Bokeh's own JavaScript, with its license."""
    from bokeh.resources import Resources

    return "\n".join(Resources(mode="inline", components=["bokeh"], log_level="warn").js_raw)


def axis_unit(span: int) -> tuple[float, str]:
    """Nanoseconds of the unit of the axis for a capture of ``span`` nanoseconds, and its name."""
    least = next(one for one in UNITS if span / 1e9 >= one[0])
    return least[1] * 1e9, least[2]


class Charts:
    """Figures one below the other; ``item`` is what ``Bokeh.embed.embed_item`` takes."""

    def __init__(self, span: int, since: str) -> None:
        """``span``: nanoseconds of the capture; ``since``: when it began, in words."""
        from bokeh.models import Range1d

        self.unit, name = axis_unit(span)
        self.unit_name = name
        self._label = f"{name} since {since}"
        self._range = Range1d(0, max(1, span) / self.unit, bounds=(0, max(1, span) / self.unit))
        self._figures: list[Any] = []

    def latency(self, data: Series) -> None:
        """A heat map of latencies, and lines of percentiles."""
        from bokeh.models import FixedTicker, HoverTool, LogColorMapper

        at, low, high, counts = data.heat
        if not len(at):
            return
        figure = self._figure("Latency", 300, y_axis_type="log", y_range=(float(low.min()), float(high.max())))
        left = data.starts[at] / self.unit
        mapper = LogColorMapper(["#dbe9f6"] * SHADES, low=0.8, high=max(2, int(counts.max())), name="heat")
        cells = figure.quad(
            left="left",
            right="right",
            bottom="bottom",
            top="top",
            fill_color={"field": "rpcs", "transform": mapper},
            line_color=None,
            name="heat",
            source=_source(
                left=left,
                right=left + data.width / self.unit,
                bottom=low,
                top=high,
                rpcs=counts.astype(np.int32),
                between=[f"{duration(one)} to {duration(other)}" for one, other in zip(low, high, strict=True)],
            ),
        )
        figure.add_tools(HoverTool(renderers=[cells], tooltips=[("RPCs", "@rpcs{0,0}"), ("latency", "@between")]))
        for percent in PERCENTS:
            label = "median" if percent == 50 else f"{percent}th percentile"
            self._steps(figure, data.starts, data.width, data.percentiles[percent], f"p{percent}", label)
        steps = (1, 2, 5) if high.max() < 300 * low.min() else (1,)
        ticks = [step * 10**power for power in range(15) for step in steps]
        figure.yaxis.ticker = FixedTicker(ticks=ticks, minor_ticks=[])
        figure.yaxis.major_label_overrides = {tick: bound(tick) for tick in ticks}
        figure.ygrid.ticker = figure.yaxis[0].ticker

    def rates(self, data: Series) -> None:
        """RPCs and bytes per second."""
        seconds = data.width / 1e9
        figure = self._figure("RPCs per second", 130)
        self._steps(figure, data.starts, data.width, data.calls / seconds, "calls", "RPCs")
        if data.failed.any():
            self._steps(figure, data.starts, data.width, data.failed / seconds, "failed", "failed")
        figure = self._figure("MiB per second", 130)
        for values, name, label in (
            (data.call_bytes, "up", "to the server"),
            (data.reply_bytes, "down", "to the client"),
        ):
            self._steps(figure, data.starts, data.width, values / seconds / 2**20, name, label)

    def outstanding(self, calls: PeakSeries | None, slots: PeakSeries | None) -> None:
        """Credits and slots in use."""
        drawn = [one for one in (calls, slots) if one is not None]
        if not drawn:
            return
        highest = max(1, *(int(one.values.max()) for one in drawn))
        far = []
        """What is too far above all that is in use: it would press the rest to the ground."""
        figure = self._figure("Credits and slots in use", 150)
        for data, limit, name, label in (
            (calls, "credits", "credits", "calls outstanding"),
            (slots, "slots", "slots", "slots in use"),
        ):
            if data is None:
                continue
            known = data.limits[~np.isnan(data.limits)]
            if len(known) and known.min() <= FAR * highest:
                self._steps(figure, data.starts, data.width, data.limits, f"{name}-limit", limit)
            elif len(known):
                low, high = int(known.min()), int(known.max())
                far.append(f"{limit}: {low:,}" + (f" to {high:,}" if high > low else ""))
            self._steps(figure, data.starts, data.width, data.values.astype(np.float64), name, label)
        if far:
            figure.title.text += f" ({', '.join(far)}, far above)"

    def unanswered(self, calls: Sequence[tuple[str, int, int]]) -> None:
        """Bars of calls without a reply: what they are, when they begin, and for how long they are outstanding, ns."""
        if not calls:
            return
        from bokeh.models import HoverTool

        figure = self._figure("Calls outstanding without a reply", 60 + 12 * len(calls))
        places = np.arange(len(calls), 0, -1).astype(np.float64)
        left = np.array([begin for _, begin, _ in calls]) / self.unit
        source = _source(
            left=left,
            right=left + np.array([waiting for *_, waiting in calls]) / self.unit,
            bottom=places - 0.9,
            top=places - 0.1,
            call=[name for name, *_ in calls],
            waiting=[at_least(waiting, True) for *_, waiting in calls],
        )
        bars = figure.quad("left", "right", "top", "bottom", line_color=None, name="failed", source=source)
        figure.add_tools(HoverTool(renderers=[bars], tooltips=[("call", "@call"), ("outstanding", "@waiting")]))
        figure.yaxis.visible = False

    def retransmissions(self, data: Series, packets: Any) -> None:
        """Packets that were retransmitted."""
        figure = self._figure("Packets retransmitted", 120)
        there = packets.nonzero()[0]
        left = data.starts[there] / self.unit
        figure.quad(
            left="left",
            right="right",
            bottom=0,
            top="top",
            line_color=None,
            name="retransmitted",
            source=_source(left=left, right=left + data.width / self.unit, top=packets[there].astype(np.float64)),
        )

    def item(self, target: str) -> dict[str, Any]:
        """For ``Bokeh.embed.embed_item``."""
        from bokeh.embed import json_item
        from bokeh.layouts import gridplot

        for figure in self._figures:
            if figure.legend:
                legend = figure.legend[0]
                legend.orientation, legend.border_line_color, legend.background_fill_alpha = "horizontal", None, 0
                legend.location = "left"
                legend.padding, legend.margin, legend.spacing = 0, 0, 12
                legend.glyph_width, legend.label_text_font_size = 16, "11px"
                figure.center.remove(legend)
                figure.add_layout(legend, "above")
        for figure in self._figures[:-1]:
            figure.xaxis.major_label_text_font_size = "0pt"
        self._figures[-1].xaxis.axis_label = self._label
        self._figures[-1].height += 40
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Bokeh 3.4 says that each figure has its own tool for dragging.
            grid = gridplot(
                [[one] for one in self._figures],
                sizing_mode="stretch_width",
                toolbar_location="above",
                toolbar_options={"logo": None},
            )
        made: dict[str, Any] = json_item(grid, target)
        return made

    def _figure(self, title: str, height: int, **options: Any) -> Any:
        from bokeh.models import BoxAnnotation, BoxSelectTool, BoxZoomTool, PanTool, ResetTool
        from bokeh.plotting import figure

        select = BoxSelectTool(dimensions="width", description="Select a span")
        tools = [
            select,
            BoxZoomTool(dimensions="width", description="Zoom into a span"),
            PanTool(dimensions="width", description="Move"),
            ResetTool(description="The whole capture"),
        ]
        made = figure(
            title=title,
            height=height,
            sizing_mode="stretch_width",
            x_range=self._range,
            tools=tools,
            active_drag=select,
            min_border_left=LEFT,
            min_border_right=16,
            background_fill_color=None,
            border_fill_color=None,
            name=title,
            **options,
        )
        made.title.text_font_size = "13px"
        for axis in (*made.xaxis, *made.yaxis):
            axis.minor_tick_line_color = None
            axis.axis_label_text_font_style = "normal"
        if "y_range" not in options:
            made.y_range.start = 0
            made.yaxis.ticker.desired_num_ticks = 3
        made.add_layout(BoxAnnotation(name="span", visible=False, level="overlay", fill_alpha=0.15))
        self._figures.append(made)
        return made

    def _steps(self, figure: Any, starts: Any, width: int, values: Any, name: str, label: str) -> None:
        """A line with a step for each interval, and none where nothing is known."""
        gaps = np.diff(starts, prepend=starts[:1] - width) > 1.5 * width
        x = np.column_stack((starts, starts, starts + width)) / self.unit
        y = np.column_stack((np.where(gaps, np.nan, values), values, values))
        source = _source(x=x.ravel().astype(np.float64), y=y.ravel().astype(np.float64))
        figure.line("x", "y", name=name, line_width=1.6, source=source, legend_label=label)


def _source(**columns: Any) -> Any:
    from bokeh.models import ColumnDataSource

    return ColumnDataSource(columns)
