"""What pyproject.toml cannot say: building leaves nothing behind in the checkout."""

from tempfile import TemporaryDirectory

from setuptools import setup

with TemporaryDirectory() as folder:
    setup(options={"build": {"build_base": folder}, "egg_info": {"egg_base": folder}})
