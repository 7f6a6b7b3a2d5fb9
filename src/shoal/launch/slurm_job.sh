#!/bin/bash
# A worker as a job of Slurm: slurm_job.sh FILE COMMAND ... leaves the exit code of the command in FILE.
# Before the time limit Slurm sends USR1: the worker saves, and the job goes back into the queue, unless all were asked to stop.
FILE=$1
shift
rm -f "$FILE"
touch -c "${FILE%.code}" # a lease older than this is of a worker before
STOP=$(dirname "$FILE")/../stop
BEFORE=$(cat "$STOP" 2> /dev/null)
(exec "$@") &
WORKER=$!
trap 'LATE=1; kill -USR1 $WORKER' USR1
trap 'kill -TERM $WORKER' TERM
while kill -0 $WORKER 2> /dev/null; do # each signal ends the waiting, not the worker
    wait $WORKER
done
trap '' USR1 TERM
wait $WORKER # how it ended, which the shell remembers
CODE=$?
if [ "$CODE" -eq 3 ] && [ -n "$LATE" ] && [ "$(cat "$STOP" 2> /dev/null)" = "$BEFORE" ]; then
    scontrol requeue "$SLURM_JOB_ID"
else
    echo "$CODE" > "$FILE"
fi
exit "$CODE"
