/* Which session tokens are good, and what each stands for (protocol.h session_open). Tokens are
   kept as keyed hashes: finding one takes no time that depends on it. Any thread. */
#ifndef BROKER_REGISTRY_H
#define BROKER_REGISTRY_H

#include "base/buf.h"
#include "base/err.h"
#include "base/id.h"
#include "base/json.h"
#include "base/secret.h"

#include <pthread.h>

struct registry;

/* One registration. Everything but the key is constant after registry_open. Held by reference: a
   request under way keeps its registration when the session closes. */
struct registration {
    unsigned magic;
    char tenant[ID_MAX], session[ID_MAX];
    char *provider, *model, *api, *base_url;
    bool custom;
    struct buf sealed; /* n == 0: no credential */

    pthread_mutex_t key_lock; /* held while the parent opens it, so that it is asked once */
    struct secret *key;       /* opened at first use; NULL until then */

    struct registry *owner;
    unsigned refs; /* guarded by the registry */
    unsigned char hash[32];
    struct registration *next;
};

struct registry *registry_new(void);
void registry_free(struct registry *r);
/* A session_open message; replaces what the token stood for. E_INVALID when a member is missing or
 * wrong. */
err registry_open(struct registry *r, const json_t *message);
/* The same without a token: nobody can find it, it lives as long as its reference. */
err registry_describe(struct registry *r, const json_t *message, struct registration **out);
void registry_close(struct registry *r, const char *token);
void registry_clear(struct registry *r);
/* NULL if there is none; else registration_unref() it. */
struct registration *registry_find(struct registry *r, struct str token);
/* The same, but waits up to timeout_ms for one that is not there yet: a host's request may overtake
   its session's registration, which comes over another socket, or be there first after the broker
   or control was started anew. What cannot be a token is not waited for. */
struct registration *registry_await(struct registry *r, struct str token, int64_t timeout_ms);
void registration_unref(struct registration *g); /* NULL-safe */
size_t registry_count(struct registry *r);
/* True when there are just so many, waiting up to timeout_ms for that: the link is asynchronous. */
bool registry_await_count(struct registry *r, size_t count, int64_t timeout_ms);

#endif
