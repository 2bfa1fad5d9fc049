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


def put_shapes_first(app, what, name, obj, options, lines):
    """Shows a field as `[n, d] – what it is`; napoleon would put its shape below it, as its type."""
    kinds = [line for line in lines if line.startswith(":type: ")]
    text = [line for line in lines if line and line not in kinds]
    if what in ("attribute", "property") and kinds and text:
        lines[:] = [f"{kinds[0].removeprefix(':type: ')} – {text[0]}", *text[1:]]


def setup(app):
    app.connect("autodoc-process-docstring", put_shapes_first, priority=600)  # after napoleon
