# Files for each version: one that was recalled lately is not delegated again.
for version in 4.1 4.2; do
  cp /export/hello.txt /export/hello-$version
  cp /export/r1m /export/r1m-$version
done
