"""`python -m etscope.etdb`."""

from etscope.etdb._main import main

raise SystemExit(main())
