# This project as it stands, installed as a user would: a change needs no new disk.
mkdir tree
tar -C "$root" --exclude=__pycache__ --exclude=captures/samples -c pyproject.toml README.md LICENSE captures cli dissect docs rdmascope |
  tar -C tree -x
"$python" -m pip install --quiet --disable-pip-version-check --no-deps --target site ./tree
rm -rf tree
