"""What proves a verdict: pictures, links, report pages, notebook views."""
