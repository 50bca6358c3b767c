"""Results as a page that is looked at rather than read, and as a Markdown table."""
