/* What the resources below /v1/sessions/:id share. */
#ifndef API_SESSIONS_H
#define API_SESSIONS_H

#include "http/http.h"
#include "session/store.h"

struct service;

/* The row that the first path parameter names, in the request's arena. E_NOT_FOUND also for another
   tenant's and deleted ones. Blocks for the database. */
err ctx_session(struct ctx *ctx, struct session_row *out);

/* The session as the API shows it; new reference. */
json_t *session_json(const struct service *service, const struct session_row *row);

#endif
