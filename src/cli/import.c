/* pi-managed import: a new session that goes on from a log, as `export` wrote it or a local Pi. */
#include <stdio.h>
#include <string.h>

#include "cli/resource.h"

static const struct option options[] = {
    REMOTE_OPTIONS,
    {"agent", "AGENT", NULL, "who goes on with it; needed"},
    {"env", "ENV", NULL, "what its sandbox is made of; needed"},
    {"title", "TEXT", NULL, "the session's title"},
    OPTION_JSON,
    {0},
};

static void add_query(struct buf *path, const char *name, const char *value)
{
    if (value == NULL)
        return;
    buf_printf(path, "%c%s=", strchr(path->p, '?') ? '&' : '?', name);
    remote_escape(path, value);
}

static err import_session(struct remote *r)
{
    const struct invocation *call = r->call;
    AUTO_BUF path = {0};
    AUTO_BUF body = {0};
    AUTO_JSON session = NULL;
    char agent[ID_MAX], environment[ID_MAX];
    const char *agent_word = option_value(call, "agent"), *word = option_value(call, "env");
    if (!agent_word || !word)
        return fail(E_INVALID, "--agent and --env must be given: the log says what was "
                               "said, not by whom and where it goes on");
    TRY(resource_find(r, &agent_resource, agent_word, agent));
    TRY(resource_find(r, &environment_resource, word, environment));
    buf_add_c(&path, "/v1/sessions/import");
    add_query(&path, "agent", agent);
    add_query(&path, "environmentId", environment);
    add_query(&path, "title", option_value(call, "title"));
    TRY(http_client_upload(r->http, path.p, "application/jsonl", call->arguments[0], &body));
    TRY(json_read(buf_str(&body), &session));
    if (remote_json(r))
        remote_print(session);
    else
        printf("%s\nSay something: pi-managed session send %s \"…\"\n", json_get_c(session, "id"),
               json_get_c(session, "id"));
    return 0;
}

static int run(const struct invocation *call)
{
    return remote_run(call, import_session);
}

const struct command import_command = {
    .name = "import",
    .arguments = "FILE",
    .summary = "Makes a session of a log: one that export wrote, or a local Pi's.",
    .options = options,
    .run = run,
};
