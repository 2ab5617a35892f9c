# What this project needs from PyPI, for the guests' Python 3.11, as a disk of its own: most changes leave it as it is.
printf '%s\n' "$requirements" >requirements.txt
"$python" -m pip install --quiet --disable-pip-version-check --target site \
  --python-version 3.11 --only-binary :all: --requirement requirements.txt
find site -type d \( -name tests -o -name test \) -prune -exec rm -rf {} +
truncate -s "$(($(du -sm site | cut -f1) * 5 / 4 + 16))M" site.ext4
mkfs.ext4 -q -O ^has_journal -d site site.ext4
rm -rf site requirements.txt
