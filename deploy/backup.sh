#!/bin/sh
# Back up a lab while it runs:
#
#   backup.sh DATABASE STORE TARGET
#
# DATABASE is postgresql://user@host/name (the password in ~/.pgpass or $PGPASSWORD) or the path of
# lab.db. The store is copied after the database, so every file that the copy names is there then;
# files never change, so only new ones are copied.
set -eu
database=$1 store=$2 target=$3
mkdir -p "$target/store"
case $database in
postgres*)
  pg_dump --format=custom --file="$target/lab.dump.part" "$database"
  mv "$target/lab.dump.part" "$target/lab.dump"
  ;;
*)
  python3 - "$database" "$target/lab.db.part" <<'END'
import sqlite3
import sys

source = sqlite3.connect(f"file:{sys.argv[1]}?mode=ro", uri=True)
copy = sqlite3.connect(sys.argv[2])
source.backup(copy)
END
  mv "$target/lab.db.part" "$target/lab.db"
  ;;
esac
cp -R -p -u "$store/." "$target/store/"
