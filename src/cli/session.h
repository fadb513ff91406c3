/* Making sessions and speaking to them: for the session verbs and for run. */
#ifndef CLI_SESSION_H
#define CLI_SESSION_H

#include "base/id.h"
#include "cli/agent.h"
#include "cli/resource.h"

#define SESSION_OPTIONS                                                                            \
    {"agent", "AGENT", "default", "who works, by name or id; default is made when it is missing"}, \
        {"env", "ENV", "default", "where; likewise"},                                              \
        {"title", "TEXT", NULL, "what the session is about"},                                      \
        {"vault", "VAULT", NULL, "where the model's key is, before the default vault"},            \
        {"max-usd", "USD", NULL, "stop when it has cost so much"},                                 \
        {"max-tokens", "N", NULL, "stop when it has used so many tokens"}, MODEL_OPTIONS

/* Makes a session from SESSION_OPTIONS (and what `body` has already). A model in the options is the
   session's own, or that of the agent if that is made now. */
err session_make(struct remote *r, json_t *body, json_t **out);
/* Posts a user.message ("-" is standard input) and watches its turn to the end, or says that it was
   sent. */
err session_say(struct remote *r, const char *session, const char *text, bool steer, bool watch);

#endif
