/* What the resources below /v1/sessions/:id share. */
#ifndef API_SESSIONS_H
#define API_SESSIONS_H

#include "http/http.h"
#include "session/history.h"
#include "session/store.h"

struct db_conn;
struct service;

/* The row that the first path parameter names, in the request's arena. E_NOT_FOUND also for another
   tenant's and deleted ones. Blocks for the database. */
err ctx_session(struct ctx *ctx, struct session_row *out);

/* Lists by position in the log: the rows that the request asks for and one more, for reply_page
   (fewer where lines are long), and the key of a row. */
err session_position_page(struct ctx *ctx, const char *session, json_t **out);
void session_position_key(const json_t *row, int64_t *out_at, char out_id[ID_MAX]);
/* A new session's row, id and all, from ctx->json as a create has it; not inserted yet. Problems of
   fields that lead nowhere are in the reply. Inside db_write. */
err session_fill(struct ctx *ctx, struct db_conn *c, struct session_row *out);

/* The session as the API shows it, without the last brace; and as the whole reply. */
void session_write(const struct service *service, const struct session_row *row, struct buf *out);
err reply_session(struct ctx *ctx, int status, const struct session_row *row);

#endif
