"""Parts of the page, one a file: each returns its markup, or none where there is nothing to show."""
