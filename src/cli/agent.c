/* pi-managed agent …: how an agent behaves, in versions. */
#include "cli/agent.h"

#include <string.h>

#include "cli/resource.h"

static const struct column columns[] = {
    {"ID", "id", COLUMN_TEXT, 0},
    {"NAME", "name", COLUMN_TEXT, 32},
    {"VERSION", "version", COLUMN_NUMBER, 0},
    {"MODEL", "model", COLUMN_MODEL, 0},
    {"CREATED", "createdAt", COLUMN_TIME, 0},
    {0},
};
const struct resource agent_resource = {
    .noun = "agent",
    .plural = "agents",
    .path = "/v1/agents",
    .id_prefix = "agent",
    .label = "name",
    .has_unique_label = true,
    .columns = columns,
    .filters = resource_archived_filter,
};

/* ---- fields from options ---- */

static err split_model(const char *text, json_t *model)
{
    const char *slash = strchr(text, '/');
    if (slash == NULL || slash == text || slash[1] == 0)
        return fail(E_INVALID, "--model %.80s: give PROVIDER/ID, like anthropic/claude-opus-5-5",
                    text);
    json_set_str(model, "provider", (struct str){text, (size_t)(slash - text)});
    json_set_str(model, "id", str_of(slash + 1));
    return 0;
}

err agent_model_options(const struct invocation *call, json_t *body)
{
    static const struct {
        const char *option, *member;
    } members[] = {{"thinking", "thinkingLevel"}, {"api", "api"}, {"base-url", "baseUrl"}};
    const char *text = option_value(call, "model");
    json_t *model = json_object_get(body, "model");
    if (text && model == NULL)
        json_object_set_new(body, "model", model = json_object());
    if (text)
        TRY(split_model(text, model));
    for (size_t i = 0; i < sizeof members / sizeof *members; i++) {
        const char *value = option_value(call, members[i].option);
        if (value && model == NULL)
            return fail(E_INVALID, "--%s belongs to a model: give --model too", members[i].option);
        if (value)
            json_set_str(model, members[i].member, str_of(value));
    }
    return 0;
}

/* TEXT, or what is in FILE for @FILE. */
static err set_prompt(const struct invocation *call, json_t *body)
{
    const char *text = option_value(call, "system-prompt");
    AUTO_BUF file = {0};
    if (text == NULL)
        return 0;
    if (text[0] == '@')
        TRY(resource_read_file(text + 1, &file));
    json_set_str(body, "systemPrompt", text[0] == '@' ? buf_str(&file) : str_of(text));
    return 0;
}

/* "read,grep": these and no others. */
static void set_tools(const struct invocation *call, json_t *body)
{
    struct str rest = str_of(option_value(call, "tools")), name;
    if (rest.p == NULL)
        return;
    json_t *configs = json_array();
    while (str_split(&rest, ',', &name)) {
        json_t *one = json_pack("{s:b}", "enabled", 1);
        json_set_str(one, "name", name);
        if (name.n)
            json_array_append(configs, one);
        json_decref(one);
    }
    json_object_set_new(
        body, "tools",
        json_pack("{s:{s:b}, s:o}", "defaultConfig", "enabled", 0, "configs", configs));
}

static err fields_of(struct remote *r, json_t **out)
{
    AUTO_JSON body = NULL;
    TRY(resource_body(r, &body));
    TRY(agent_model_options(r->call, body));
    TRY(set_prompt(r->call, body));
    set_tools(r->call, body);
    *out = json_incref(body);
    return 0;
}

/* ---- verbs ---- */

static err create_work(struct remote *r)
{
    AUTO_JSON body = NULL;
    AUTO_JSON agent = NULL;
    TRY(fields_of(r, &body));
    json_set_str(body, "name", str_of(r->call->arguments[0]));
    if (json_object_get(body, "model") == NULL)
        return fail(E_INVALID, "an agent needs a model: --model PROVIDER/ID");
    TRY(remote_send(r, "POST", agent_resource.path, json_incref(body), &agent));
    resource_say(r, "made", agent);
    return 0;
}

/* A model is replaced whole, as in the API: the level alone changes the agent's own. */
static err keep_model(struct remote *r, const char *path, json_t *body)
{
    AUTO_JSON agent = NULL;
    if (option_value(r->call, "model") || option_value(r->call, "thinking") == NULL ||
        json_object_get(body, "model"))
        return 0;
    TRY(remote_get(r, path, &agent));
    json_object_set(body, "model", json_object_get(agent, "model"));
    return 0;
}

static err update_work(struct remote *r)
{
    AUTO_BUF path = {0};
    AUTO_JSON body = NULL;
    AUTO_JSON agent = NULL;
    TRY(resource_path(r, "", &path));
    TRY(resource_body(r, &body));
    TRY(keep_model(r, path.p, body));
    TRY(agent_model_options(r->call, body));
    TRY(set_prompt(r->call, body));
    set_tools(r->call, body);
    if (option_value(r->call, "name"))
        json_set_str(body, "name", str_of(option_value(r->call, "name")));
    if (json_object_size(body) == 0)
        return fail(E_INVALID, "nothing to change: see pi-managed agent update --help");
    TRY(remote_send(r, "PATCH", path.p, json_incref(body), &agent));
    AUTO_BUF said = {0};
    buf_printf(&said, "is at version %lld", (long long)json_get_int(agent, "version", 0));
    resource_say(r, said.p, agent);
    return 0;
}

static int create(const struct invocation *call)
{
    return remote_run(call, create_work);
}

static int update(const struct invocation *call)
{
    return remote_run(call, update_work);
}

static err versions_work(struct remote *r)
{
    AUTO_BUF path = {0};
    AUTO_JSON rows = NULL;
    TRY(resource_path(r, "/versions", &path));
    TRY(remote_list(r, path.p, SIZE_MAX, &rows));
    for (size_t i = 0; remote_json(r) && i < json_array_size(rows); i++)
        remote_print(json_array_get(rows, i));
    if (!remote_json(r))
        table_print(rows, columns);
    return 0;
}

static int versions(const struct invocation *call)
{
    return remote_run(call, versions_work);
}

#define PROMPT_OPTION                                                                              \
    {                                                                                              \
        "system-prompt", "TEXT", NULL, "instead of Pi's own; @FILE reads a file"                   \
    }
#define TOOLS_OPTION                                                                               \
    {                                                                                              \
        "tools", "LIST", NULL,                                                                     \
            "only these, with commas: bash, read, write, edit, grep, find, ls; default: all"       \
    }

static const struct option create_options[] = {
    MODEL_OPTIONS, PROMPT_OPTION, TOOLS_OPTION, OPTION_FROM, OPTION_JSON, REMOTE_OPTIONS, {0}};
static const struct option update_options[] = {
    {"name", "NAME", NULL, "call it this"},
    MODEL_OPTIONS,
    PROMPT_OPTION,
    TOOLS_OPTION,
    OPTION_FROM,
    OPTION_JSON,
    REMOTE_OPTIONS,
    {0},
};
static const struct option lines_options[] = {OPTION_JSON_LINES, REMOTE_OPTIONS, {0}};

const struct command agent_create_command = {
    .name = "agent create",
    .arguments = "NAME",
    .summary = "Makes an agent: a model, a prompt, tools.",
    .details = "The service needs a key for the model's provider: it takes ANTHROPIC_API_KEY, "
               "OPENAI_API_KEY\nand their like from its own environment when it starts.",
    .options = create_options,
    .run = create,
    .resource = &agent_resource,
};
const struct command agent_list_command = {
    .name = "agent list",
    .arguments = "",
    .summary = "Lists agents, newest first.",
    .options = resource_list_options,
    .run = resource_list,
    .resource = &agent_resource,
};
const struct command agent_get_command = {
    .name = "agent get",
    .arguments = "AGENT",
    .summary = "Shows an agent.",
    .options = resource_one_options,
    .run = resource_get,
    .resource = &agent_resource,
};
const struct command agent_update_command = {
    .name = "agent update",
    .arguments = "AGENT",
    .summary = "Makes a new version of an agent; sessions keep the version they were made with.",
    .details = "What is not named stays as it is.",
    .options = update_options,
    .run = update,
    .resource = &agent_resource,
};
const struct command agent_versions_command = {
    .name = "agent versions",
    .arguments = "AGENT",
    .summary = "Lists the versions of an agent.",
    .options = lines_options,
    .run = versions,
    .resource = &agent_resource,
};
const struct command agent_archive_command = {
    .name = "agent archive",
    .arguments = "AGENT",
    .summary = "Archives an agent for good: it stays readable, no new session can use it.",
    .options = resource_one_options,
    .run = resource_archive,
    .resource = &agent_resource,
};
