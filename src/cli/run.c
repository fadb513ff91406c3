/* pi-managed run: the shortest way to an agent at work. Makes a session (or goes on with one), says
   the prompt, watches until the turn ends. */
#include <stdio.h>

#include "cli/session.h"
#include "cli/tail.h"

static err make_session(struct remote *r, char out_id[ID_MAX])
{
    AUTO_JSON body = json_object();
    AUTO_JSON session = NULL;
    TRY(session_make(r, body, &session));
    return resource_find(r, &session_resource, json_get_c(session, "id"), out_id);
}

/* A session that exists keeps its agent and environment. */
static err refuse_new_things(const struct invocation *call)
{
    static const char *const of_new[] = {"agent", "env",      "title",   "model",      "thinking",
                                         "api",   "base-url", "max-usd", "max-tokens", "vault"};
    for (size_t i = 0; i < sizeof of_new / sizeof *of_new; i++) {
        if (option_given(call, of_new[i]))
            return fail(E_INVALID, "--%s is for a new session; --session names one that exists",
                        of_new[i]);
    }
    return 0;
}

static err run_work(struct remote *r)
{
    char id[ID_MAX];
    const char *old = option_value(r->call, "session");
    TRY(old ? refuse_new_things(r->call) : 0);
    TRY(old ? resource_find(r, &session_resource, old, id) : make_session(r, id));
    fprintf(stderr, "· session %s\n", id);
    return session_say(r, id, r->call->arguments[0], false, !option_flag(r->call, "detach"));
}

static int run(const struct invocation *call)
{
    return remote_run(call, run_work);
}

static const struct option options[] = {
    SESSION_OPTIONS,
    {"session", "SESSION", NULL, "go on with this one instead of a new one; last: the newest"},
    {"detach", NULL, NULL, "do not watch"},
    TAIL_OPTIONS,
    REMOTE_OPTIONS,
    {0},
};

const struct command run_command = {
    .name = "run",
    .arguments = "PROMPT",
    .summary = "Gives an agent a task in a new session and watches until it is done.",
    .details = "PROMPT - is standard input.\n" TAIL_DETAILS,
    .options = options,
    .run = run,
};
