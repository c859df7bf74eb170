#!/usr/bin/env bash
# Check $NEW against $FOLDER/baseline.json, or only measure it. Writes all formats into $FOLDER.
# The action fails at its end, so that a comment is written first; here only for a broken input.
set -uo pipefail
mkdir -p "$FOLDER"
rm -f "$FOLDER"/check.* "$FOLDER/new.json"
read -r -a arguments <<< "$ARGUMENTS"
sides=("$NEW")
files=(-o "$FOLDER/check.md" -o "$FOLDER/new.json")
if [ -f "$FOLDER/baseline.json" ]; then
  sides=("$FOLDER/baseline.json" "$NEW")
  files+=(-o "$FOLDER/check.sarif" -o "$FOLDER/check.xml")
else
  echo "::notice title=etscope check::No baseline of this branch yet; a push makes one."
fi
etscope check "${sides[@]}" "${arguments[@]}" "${files[@]}"
code=$?
if [ ! -f "$FOLDER/check.md" ]; then # not a verdict
  echo "::error title=etscope check::etscope check failed with exit code $code"
  exit "$code"
fi
if [ "${#sides[@]}" -eq 2 ]; then
  etscope check "${sides[0]}" "$FOLDER/new.json" "${arguments[@]}" --format github
fi
cat "$FOLDER/check.md" >> "$GITHUB_STEP_SUMMARY"
{
  echo "exit-code=$code"
  echo "folder=$FOLDER"
} >> "$GITHUB_OUTPUT"
