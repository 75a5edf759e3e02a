"""What the addon costs, as ratios against bare mitmproxy in the same run: `python -m bench`."""
