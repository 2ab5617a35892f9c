# The mirror is the one that apt is configured with; none other may be reachable.
mirror=$(apt-get indextargets --format '$(CODENAME) $(COMPONENT) $(REPO_URI)' 'Created-By: Packages' |
  awk '$1 == "bookworm" && $2 == "main" { print $3; exit }')
[ -n "$mirror" ] || { echo "apt is not configured with Debian 12" >&2; exit 1; }
