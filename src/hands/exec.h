/* EXEC: a plain process whose input and output travel over the connection, in pipes or on a
 * terminal. */
#ifndef HANDS_EXEC_H
#define HANDS_EXEC_H

#include "base/err.h"
#include "base/json.h"

/* Serves the conversation that an EXEC frame opened, to its EXIT. When nothing could be started,
 *out_message says why (static storage or the thread's error slot), *out_code is the code for ERROR,
   and nothing was sent. */
err exec_serve(int fd, const json_t *request, const char **out_code, const char **out_message);

#endif
