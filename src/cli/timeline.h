/* What happened in a session, told from its events: one row for each message, model request, retry,
   sandbox start, tool call, answer and error, with how long it took and what it cost; and the sums.
   Pure: events in, JSON out. */
#ifndef CLI_TIMELINE_H
#define CLI_TIMELINE_H

#include "base/json.h"

/* `events` as GET …/events gives them, oldest first. *out is {rows: […], totals: {…}}; each row has
   kind, text, at, offsetMs (since the first), seq, and what applies of durationMs, ttftMs, costUsd,
   usage, attempt, error, eventId, requestId, toolCallId. An event of a kind that is not known here
   is a row too. */
json_t *timeline_of(const json_t *events);

#endif
