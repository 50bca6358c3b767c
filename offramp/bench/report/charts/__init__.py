"""Charts as SVG inside the page. Colours come from the page's style, numbers from cells and lines."""
