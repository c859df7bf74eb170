#!/bin/sh
# Bring back what backup.sh wrote. Stop the lab's server before:
#
#   restore.sh DATABASE STORE TARGET
#
# A PostgreSQL database has to exist; its tables of the lab are replaced.
set -eu
database=$1 store=$2 target=$3
mkdir -p "$store"
cp -R -p -u "$target/store/." "$store/"
case $database in
postgres*)
  pg_restore --clean --if-exists --no-owner --exit-on-error --single-transaction \
    --dbname="$database" "$target/lab.dump"
  ;;
*)
  rm -f "$database-wal" "$database-shm"
  cp -p "$target/lab.db" "$database.part"
  mv "$database.part" "$database"
  ;;
esac
