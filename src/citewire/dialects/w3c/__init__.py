"""W3C Web Annotation: answers as annotations with selectors."""
