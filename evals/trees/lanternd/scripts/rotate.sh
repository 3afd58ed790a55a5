#!/bin/sh
# Keeps the logs of the last 14 days.
set -eu
find /var/log/lantern -name '*.log' -mtime +14 -delete
