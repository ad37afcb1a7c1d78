"""Evidence for a verdict: pictures, links, report pages, notebook views."""
