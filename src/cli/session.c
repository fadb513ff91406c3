/* pi-managed session …: agents at work. */
#include "cli/session.h"

#include <stdio.h>
#include <string.h>

#include "cli/tail.h"

#define DEFAULT_NAME "default"

static const struct column columns[] = {
    {"ID", "id", COLUMN_TEXT, 0},
    {"STATUS", "status", COLUMN_TEXT, 0},
    {"LAST STOP", "stopReason.type", COLUMN_TEXT, 0},
    {"AGENT", "agent.name", COLUMN_TEXT, 20},
    {"COST", "usage.costUsd", COLUMN_USD, 0},
    {"ACTIVE", "lastActivityAt", COLUMN_TIME, 0},
    {"TITLE", "title", COLUMN_TEXT, 40},
    {0},
};
static const struct resource_filter filters[] = {
    {.option = "status", .query = "status"},
    {.option = "agent", .query = "agentId", .resource = &agent_resource},
    {.option = "env", .query = "environmentId", .resource = &environment_resource},
    {0},
};
const struct resource session_resource = {
    .noun = "session",
    .plural = "sessions",
    .path = "/v1/sessions",
    .id_prefix = "sess",
    .label = "title",
    .purge = "purge",
    .columns = columns,
    .filters = filters,
};

/* ---- making one ---- */

static bool is_default(const char *word)
{
    return strcmp(word, DEFAULT_NAME) == 0;
}

/* A default that is missing is made, aloud; somebody may make it at the same time. */
static err make_default(struct remote *r, const struct resource *resource, json_t *take_body,
                        char out_id[ID_MAX])
{
    AUTO_JSON made = NULL;
    json_set_str(take_body, "name", STR(DEFAULT_NAME));
    err e = remote_send(r, "POST", resource->path, take_body, &made);
    if (e && e != E_CONFLICT)
        return e;
    if (!e)
        fprintf(stderr,
                "· made the %s " DEFAULT_NAME "; pi-managed %s update " DEFAULT_NAME
                " changes it\n",
                resource->noun, resource->noun);
    return resource_find(r, resource, DEFAULT_NAME, out_id);
}

static err default_agent(struct remote *r, char out_id[ID_MAX])
{
    AUTO_JSON body = json_object();
    TRY(agent_model_options(r->call, body));
    if (json_object_get(body, "model") == NULL)
        return fail(E_NOT_FOUND,
                    "there is no agent " DEFAULT_NAME
                    " yet: say once which model it shall use, --model PROVIDER/ID (like "
                    "anthropic/claude-opus-5-5), or name another with --agent");
    return make_default(r, &agent_resource, json_incref(body), out_id);
}

/* *out_made: the options' model is the agent's. */
static err choose_agent(struct remote *r, char out_id[ID_MAX], bool *out_made)
{
    const char *word = option_value(r->call, "agent");
    err e = resource_find(r, &agent_resource, word, out_id);
    *out_made = e == E_NOT_FOUND && is_default(word);
    return *out_made ? default_agent(r, out_id) : e;
}

static err choose_environment(struct remote *r, char out_id[ID_MAX])
{
    const char *word = option_value(r->call, "env");
    err e = resource_find(r, &environment_resource, word, out_id);
    return e == E_NOT_FOUND && is_default(word)
               ? make_default(r, &environment_resource, json_object(), out_id)
               : e;
}

static err set_budget(const struct invocation *call, json_t *body)
{
    static const struct {
        const char *option, *member;
    } limits[] = {{"max-usd", "maxUsd"}, {"max-tokens", "maxTokens"}};
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        const char *text = option_value(call, limits[i].option);
        json_t *budget = json_object_get(body, "budget"), *value = NULL;
        if (text == NULL)
            continue;
        TRY(resource_number(limits[i].option, text, &value));
        if (budget == NULL)
            json_object_set_new(body, "budget", budget = json_object());
        json_object_set_new(budget, limits[i].member, value);
    }
    return 0;
}

static err set_vault(struct remote *r, json_t *body)
{
    char id[ID_MAX];
    const char *word = option_value(r->call, "vault");
    if (word == NULL)
        return 0;
    TRY(resource_find(r, &vault_resource, word, id));
    json_object_set_new(body, "vaultIds", json_pack("[s]", id));
    return 0;
}

err session_make(struct remote *r, json_t *body, json_t **out)
{
    char agent[ID_MAX], environment[ID_MAX];
    bool made = false;
    AUTO_JSON overrides = json_object();
    const char *title = option_value(r->call, "title");
    if (json_object_get(body, "agent") == NULL) {
        TRY(choose_agent(r, agent, &made));
        TRY(made ? 0 : agent_model_options(r->call, overrides));
        json_object_set_new(body, "agent",
                            json_object_size(overrides)
                                ? json_pack("{s:s, s:O}", "id", agent, "overrides", overrides)
                                : json_string(agent));
    }
    if (json_object_get(body, "environmentId") == NULL) {
        TRY(choose_environment(r, environment));
        json_object_set_new(body, "environmentId", json_string(environment));
    }
    if (title)
        json_set_str(body, "title", str_of(title));
    TRY(set_budget(r->call, body));
    TRY(set_vault(r, body));
    return remote_send(r, "POST", session_resource.path, json_incref(body), out);
}

static err create_work(struct remote *r)
{
    AUTO_JSON body = NULL;
    AUTO_JSON session = NULL;
    TRY(resource_body(r, &body));
    TRY(session_make(r, body, &session));
    resource_say(r, "made", session);
    return 0;
}

static int create(const struct invocation *call)
{
    return remote_run(call, create_work);
}

/* ---- speaking to one ---- */

static err post(struct remote *r, const char *session, json_t *take_event, json_t **out)
{
    char path[ID_MAX + 32];
    AUTO_JSON answer = NULL;
    snprintf(path, sizeof path, "/v1/sessions/%s/events", session);
    TRY(remote_send(r, "POST", path, take_event, &answer));
    *out = json_incref(json_array_get(json_object_get(answer, "data"), 0));
    return *out ? 0 : fail(E_INTERNAL, "the service's answer to a posted event is empty");
}

static err post_message(struct remote *r, const char *session, const char *text, bool steer,
                        json_t **out)
{
    AUTO_BUF read = {0};
    if (strcmp(text, "-") == 0)
        TRY(resource_read_file("-", &read));
    struct str content = read.p ? buf_str(&read) : str_of(text);
    if (!str_is_utf8(content))
        return fail(E_INVALID, "the message is not UTF-8 text");
    json_t *event = json_pack("{s:s}", "type", "user.message");
    json_set_str(event, "content", content);
    if (steer)
        json_set_str(event, "deliverAs", STR("steer"));
    return post(r, session, event, out);
}

static err head_of(struct remote *r, const char *session, int64_t *out)
{
    char path[ID_MAX + 64];
    AUTO_JSON rows = NULL;
    snprintf(path, sizeof path, "/v1/sessions/%s/events?order=desc&limit=1", session);
    TRY(remote_list(r, path, 1, &rows));
    *out = json_get_int(json_array_get(rows, 0), "seq", 0);
    return 0;
}

err session_say(struct remote *r, const char *session, const char *text, bool steer, bool watch)
{
    AUTO_JSON event = NULL;
    int64_t head = 0;
    if (watch)
        TRY(head_of(r, session, &head));
    TRY(post_message(r, session, text, steer, &event));
    const char *id = json_get_c(event, "id");
    if (watch)
        return tail_turn(r, &(struct tail){.session = session, .after = head, .message = id});
    if (remote_json(r))
        remote_print(event);
    else
        printf("%s sent to %s; pi-managed session tail %s watches\n", id, session, session);
    return 0;
}

static err send_work(struct remote *r)
{
    char id[ID_MAX];
    TRY(resource_find(r, &session_resource, r->call->arguments[0], id));
    return session_say(r, id, r->call->arguments[1], option_flag(r->call, "steer"),
                       option_flag(r->call, "tail"));
}

static int send_message(const struct invocation *call)
{
    return remote_run(call, send_work);
}

static err interrupt_work(struct remote *r)
{
    char id[ID_MAX];
    AUTO_JSON event = NULL;
    TRY(resource_find(r, &session_resource, r->call->arguments[0], id));
    TRY(post(r, id, json_pack("{s:s}", "type", "user.interrupt"), &event));
    if (remote_json(r))
        remote_print(event);
    else
        printf("%s interrupted: its turn, if one runs, ends now\n", id);
    return 0;
}

static int interrupt(const struct invocation *call)
{
    return remote_run(call, interrupt_work);
}

static err withdraw_work(struct remote *r)
{
    char id[ID_MAX];
    AUTO_BUF path = {0};
    TRY(resource_find(r, &session_resource, r->call->arguments[0], id));
    buf_printf(&path, "/v1/sessions/%s/events/", id);
    remote_escape(&path, r->call->arguments[1]);
    TRY(remote_send(r, "DELETE", path.p, NULL, NULL));
    AUTO_JSON said = json_pack("{s:s, s:b}", "id", r->call->arguments[1], "withdrawn", 1);
    if (remote_json(r))
        remote_print(said);
    else
        printf("%s withdrawn\n", r->call->arguments[1]);
    return 0;
}

static int withdraw(const struct invocation *call)
{
    return remote_run(call, withdraw_work);
}

/* ---- the verbs ---- */

static const struct option create_options[] = {
    SESSION_OPTIONS, OPTION_FROM, OPTION_JSON, REMOTE_OPTIONS, {0}};
static const struct option list_options[] = {
    {"status", "STATUS", NULL, "idle, running, rescheduling or terminated"},
    {"agent", "AGENT", NULL, "only of this agent"},
    {"env", "ENV", NULL, "only in this environment"},
    OPTION_LIMIT,
    OPTION_JSON_LINES,
    REMOTE_OPTIONS,
    {0},
};
static const struct option send_options[] = {
    {"tail", NULL, NULL, "watch until its turn ends; see session tail"},
    {"steer", NULL, NULL, "between the tool calls of the running turn, not after it"},
    TAIL_OPTIONS,
    REMOTE_OPTIONS,
    {0},
};
static const struct option delete_options[] = {
    {"purge", NULL, NULL, "remove its log at once, too"},
    OPTION_JSON,
    REMOTE_OPTIONS,
    {0},
};

const struct command session_create_command = {
    .name = "session create",
    .arguments = "",
    .summary = "Makes a session; nothing runs until something is said in it.",
    .options = create_options,
    .run = create,
    .resource = &session_resource,
};
const struct command session_list_command = {
    .name = "session list",
    .arguments = "",
    .summary = "Lists sessions, newest first.",
    .options = list_options,
    .run = resource_list,
    .resource = &session_resource,
};
const struct command session_get_command = {
    .name = "session get",
    .arguments = "SESSION",
    .summary = "Shows a session: its state, its agent, what it used.",
    .options = resource_one_options,
    .run = resource_get,
    .resource = &session_resource,
};
const struct command session_send_command = {
    .name = "session send",
    .arguments = "SESSION MESSAGE",
    .summary = "Says something in a session; while a turn runs it waits its turn.",
    .details = "MESSAGE - is standard input. With --tail, exit status as of session tail.",
    .options = send_options,
    .run = send_message,
    .resource = &session_resource,
};
const struct command session_interrupt_command = {
    .name = "session interrupt",
    .arguments = "SESSION",
    .summary = "Ends the turn that runs, at once.",
    .options = resource_one_options,
    .run = interrupt,
    .resource = &session_resource,
};
const struct command session_withdraw_command = {
    .name = "session withdraw",
    .arguments = "SESSION EVENT",
    .summary = "Takes back a message that still waits its turn.",
    .options = resource_one_options,
    .run = withdraw,
    .resource = &session_resource,
};
const struct command session_delete_command = {
    .name = "session delete",
    .arguments = "SESSION",
    .summary = "Deletes a session and its sandbox.",
    .options = delete_options,
    .run = resource_delete,
    .resource = &session_resource,
};
