"""`python -m etscope.compat SCRIPT`: run a script of upstream's tools on etscope."""

from etscope.compat import main

main()
