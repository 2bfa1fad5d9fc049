"""The documentation site: `make docs` builds it."""

import gpn_ops

project = "gpn_ops"
author = "gpn_ops developers"
version = release = gpn_ops.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx-mathjax-offline"]
exclude_patterns = ["README.md"]
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3
# Code that users copy has no use for prompts, but these blocks show results and run as tests.
highlight_language = "python"

html_theme = "furo"
html_title = f"gpn_ops {release}"
html_show_copyright = False
html_static_path = ["_static"]
html_css_files = ["wide_tables.css"]

autodoc_member_order = "bysource"
autodoc_typehints = "none"
napoleon_google_docstring = True
napoleon_numpy_docstring = False
