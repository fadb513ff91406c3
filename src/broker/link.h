/* Control's end of the broker protocol. Survives broker restarts: the parent hands in a new socket
   (broker_link_attach) and open sessions are registered again. Calls never block on the broker,
   but for broker_check_key; any thread. */
#ifndef BROKER_LINK_H
#define BROKER_LINK_H

#include "base/err.h"
#include "base/json.h"

struct broker_link;

struct broker_session {
    const char *token; /* 64 hex digits, made by control */
    const char *tenant, *session;
    const char *provider, *model, *api, *base_url;
    bool custom;
    struct str sealed; /* n == 0: no credential */
};

struct broker_events { /* called on the link's reader thread; must not block */
    /* `said`: how many messages the session's host had sent to control before it asked. */
    void (*request_begin)(void *arg, const char *session, const char *request, int64_t input_tokens,
                          int64_t said);
    void (*request_end)(void *arg, const char *session, const char *request, const json_t *end);
    /* The link broke: every request under way is lost; each open one will not get a request_end. */
    void (*lost)(void *arg);
    void *arg;
};

struct broker_verdict {
    const char *verdict;       /* "valid", "invalid" or "unknown" */
    char reason[ERR_TEXT_MAX]; /* for people; "" if valid */
};

struct broker_link *broker_link_new(const struct broker_events *events);
/* Ends the link's threads; no event comes afterwards. */
void broker_link_free(struct broker_link *l);
/* A new broker is there: what the old one was asked is void, `lost` is called if it had been there.
 */
void broker_link_attach(struct broker_link *l, int take_fd);
void broker_open_session(struct broker_link *l, const struct broker_session *s);
void broker_close_session(struct broker_link *l, const char *token);
void broker_request_go(struct broker_link *l, const char *request, int64_t number);
void broker_request_hold(struct broker_link *l, const char *request, int64_t ms);
void broker_request_refuse(struct broker_link *l, const char *request, int status, const char *code,
                           const char *detail);
void broker_request_cancel(struct broker_link *l, const char *session);
/* §8.5: tries the key of `s` (its session is the credential's id, it has no token) at the provider.
   Waits for at most timeout_ms, unlike the other calls; whatever goes wrong is "unknown". Few at a
   time: a provider that is slow to answer must not take all threads of the caller. */
void broker_check_key(struct broker_link *l, const struct broker_session *s, int64_t timeout_ms,
                      struct broker_verdict *out);
/* The service stops: whoever waits for a verdict gets it now, "unknown", and so does who asks
 * later.
 */
void broker_end_checks(struct broker_link *l);
bool broker_link_up(const struct broker_link *l); /* for /readyz */

#endif
