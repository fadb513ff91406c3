/* The life of one model request, from the host's headers to the report to control:
   token → request_begin → request_go → key → dial → relay → request_end.
   It knows nothing of the server it arrived through; gateway.c feeds it. One thread. */
#ifndef BROKER_EXCHANGE_H
#define BROKER_EXCHANGE_H

#include "base/err.h"
#include "base/str.h"
#include "broker/credential.h"
#include "broker/upstream.h"

#define EXCHANGE_BODY_MAX (64u << 20)

struct control;
struct exchange;
struct registry;
struct request_table;

/* What all exchanges share; outlives them. */
struct exchange_env {
    struct registry *registry;
    struct request_table *requests;
    struct control *control;
    const struct dial_guard *guard;
    struct credential_source credentials;
    int64_t go_timeout_ms;      /* 0 = 30000 (protocol.h) */
    int64_t idle_ms;            /* 0 = upstream's own limit */
    const char *ca_file;        /* NULL: the certificates that the system trusts */
    struct upstream_pool *pool; /* NULL: connections are not kept */
};

/* `target` as it stood in the request line. */
struct exchange *model_exchange_new(const struct exchange_env *env, const char *target);
/* One call for each request header. Strings are copied. */
void model_exchange_header(struct exchange *x, const char *name, const char *value);
/* How long what a request needs may be behind it, on its way over another socket. */
#define EXCHANGE_OVERTAKEN_MS 2000

/* After the headers: is the session's token registered? Waits for one that may be on its way. */
bool model_exchange_identify(struct exchange *x);
/* Then. Decides whether the caller may speak at all; the answer is given later. `tenant`: whose
   gateway socket this is. */
void model_exchange_admit(struct exchange *x, const char *tenant, const char *method, int host_fd);
void model_exchange_body(struct exchange *x, struct str part);

struct exchange_answer {
    int status;
    const struct upstream_header *headers; /* hop-by-hop ones are for the caller to leave out */
    size_t header_count;
    int64_t length; /* of the body; -1: not known before its end */
};

/* After the body: waits for the head of the answer, the provider's or our own. */
void model_exchange_run(struct exchange *x, struct exchange_answer *out);
/* Waits for the next part of the answer's body. *out_n == 0: it is complete. An error means that
   the answer breaks off here, and the host must see that. */
err model_exchange_read(struct exchange *x, char *p, size_t cap, size_t *out_n);
/* NULL-safe. Before the answer was complete: the host went away. */
void model_exchange_free(struct exchange *x);

#endif
