/* pi-managed session update and fork: other words for a session, and another way to go on from it.
 */
#include <stdio.h>

#include "cli/resource.h"

static void set_title(const struct invocation *call, json_t *body)
{
    const char *title = option_value(call, "title");
    if (title && title[0])
        json_set_str(body, "title", str_of(title));
}

static err update_work(struct remote *r)
{
    AUTO_BUF path = {0};
    AUTO_JSON body = NULL;
    AUTO_JSON session = NULL;
    TRY(resource_path(r, "", &path));
    TRY(resource_body(r, &body));
    set_title(r->call, body);
    if (json_object_size(body) == 0)
        return fail(E_INVALID, "nothing to change: see pi-managed session update --help");
    TRY(remote_send(r, "PATCH", path.p, json_incref(body), &session));
    resource_say(r, "changed", session);
    return 0;
}

static int update(const struct invocation *call)
{
    return remote_run(call, update_work);
}

static err fork_work(struct remote *r)
{
    AUTO_BUF path = {0};
    AUTO_JSON body = json_object();
    AUTO_JSON session = NULL;
    const char *entry = option_value(r->call, "entry");
    TRY(resource_path(r, "/fork", &path));
    set_title(r->call, body);
    if (entry)
        json_set_str(body, "entryId", str_of(entry));
    TRY(remote_send(r, "POST", path.p, json_incref(body), &session));
    resource_say(r, "made", session);
    return 0;
}

static int fork_session(const struct invocation *call)
{
    return remote_run(call, fork_work);
}

static const struct option update_options[] = {
    {"title", "TEXT", NULL, "what the session is about"},
    OPTION_FROM,
    OPTION_JSON,
    REMOTE_OPTIONS,
    {0},
};
static const struct option fork_options[] = {
    {"entry", "ENTRY", NULL, "go on from this entry of the log; default: from its end"},
    {"title", "TEXT", NULL, "what it is about; default: as before"},
    OPTION_JSON,
    REMOTE_OPTIONS,
    {0},
};

const struct command session_update_command = {
    .name = "session update",
    .arguments = "SESSION",
    .summary = "Changes a session's title; with --from also metadata and the agent's tools.",
    .options = update_options,
    .run = update,
    .resource = &session_resource,
};
const struct command session_fork_command = {
    .name = "session fork",
    .arguments = "SESSION",
    .summary = "Makes a session that goes on from what was said in another.",
    .details = "Its sandbox begins empty.",
    .options = fork_options,
    .run = fork_session,
    .resource = &session_resource,
};
