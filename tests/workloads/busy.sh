#!/bin/sh
# SPDX-License-Identifier: MIT OR Apache-2.0
# busy.sh COUNT: a shell at work, with a short process every so often.
i=0
while [ "$i" -lt "$1" ]; do
	j=0
	while [ "$j" -lt 1000 ]; do j=$((j + 1)); done
	true | /bin/true
	i=$((i + 1))
done
