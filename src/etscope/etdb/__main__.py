"""`python -m etscope.etdb`."""

from etscope.etdb.ui.main import main

raise SystemExit(main())
