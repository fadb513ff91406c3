/* The running service, as commands see it: JSON in and out, lists whole, what goes wrong said with
   what to do about it. A command's work is a function that gets a struct remote; it sets `status`
   when its exit status says more than done (0) or failed (1). One thread. */
#ifndef CLI_REMOTE_H
#define CLI_REMOTE_H

#include "base/json.h"
#include "cli/command.h"
#include "cli/http_client.h"

struct remote {
    const struct invocation *call;
    struct http_client *http;
    const char *key_source; /* where the API key came from, for messages */
    int status;
    void (*on_page)(const json_t *page); /* of a list: says what stands beside its rows; or NULL */
};

/* Every command that uses this has these options. */
#define REMOTE_OPTIONS                                                                             \
    {"url", "URL", "http://127.0.0.1:7433", "the running service"},                                \
        {"ca-cert", "FILE", NULL,                                                                  \
         "trust the certificates in it, for a service with one of its own"},                       \
    {                                                                                              \
        "data", "DIR", "./pi-managed-data",                                                        \
            "where serve wrote the first API key; PI_MANAGED_API_KEY wins"                         \
    }

/* Opens the service, does the work, tells the person what went wrong. Returns the exit status. */
int remote_run(const struct invocation *call, err (*work)(struct remote *r));

err remote_get(struct remote *r, const char *path, json_t **out);
/* take_body is an object or NULL. `out` may be NULL; *out is NULL when the answer has no body. */
err remote_send(struct remote *r, const char *method, const char *path, json_t *take_body,
                json_t **out);
/* All pages of a list, or the first `max` rows, as one array. `path` may have a query. */
err remote_list(struct remote *r, const char *path, size_t max, json_t **out);
/* Appends `text` as a part of a path or a value of a query. */
void remote_escape(struct buf *out, const char *text);

bool remote_json(const struct remote *r); /* --json */
void remote_print(const json_t *j);       /* one line of JSON on standard output */

#endif
