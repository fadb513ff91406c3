/* pi-managed vault …, over the API: where sessions find the keys of model providers. Keys come in
   on standard input and are never shown again. */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <termios.h>
#include <unistd.h>

#include "base/secret.h"
#include "cli/resource.h"

#define KEY_MAX 2048

static const struct column columns[] = {
    {"ID", "id", COLUMN_TEXT, 0},
    {"NAME", "name", COLUMN_TEXT, 32},
    {"DEFAULT", "isDefault", COLUMN_TEXT, 0},
    {"CREATED", "createdAt", COLUMN_TIME, 0},
    {0},
};
static const struct column key_columns[] = {
    {"ID", "id", COLUMN_TEXT, 0},
    {"FOR", "key", COLUMN_TEXT, 60},
    {"CHANGED", "updatedAt", COLUMN_TIME, 0},
    {0},
};
const struct resource vault_resource = {
    .noun = "vault",
    .plural = "vaults",
    .path = "/v1/vaults",
    .id_prefix = "vault",
    .label = "name",
    .columns = columns,
    .filters = resource_archived_filter,
};

static err create_work(struct remote *r)
{
    AUTO_JSON made = NULL;
    TRY(remote_send(r, "POST", vault_resource.path,
                    json_pack("{s:s}", "name", r->call->arguments[0]), &made));
    resource_say(r, "made", made);
    return 0;
}

static int create(const struct invocation *call)
{
    return remote_run(call, create_work);
}

/* ---- keys ---- */

/* Signals wait until the terminal echoes again. */
static bool read_unseen(char *out, size_t n)
{
    struct termios before, quiet;
    sigset_t signals, mask;
    if (!isatty(STDIN_FILENO) || tcgetattr(STDIN_FILENO, &before) != 0)
        return fgets(out, (int)n, stdin) != NULL;
    sigfillset(&signals);
    sigprocmask(SIG_BLOCK, &signals, &mask);
    quiet = before;
    quiet.c_lflag &= ~(tcflag_t)ECHO;
    fprintf(stderr, "The key (it is not shown): ");
    tcsetattr(STDIN_FILENO, TCSAFLUSH, &quiet);
    bool got = fgets(out, (int)n, stdin) != NULL;
    tcsetattr(STDIN_FILENO, TCSAFLUSH, &before);
    fputc('\n', stderr);
    sigprocmask(SIG_SETMASK, &mask, NULL);
    return got;
}

/* A line. */
static err read_key(char out[KEY_MAX + 2])
{
    bool got = read_unseen(out, KEY_MAX + 2);
    out[got ? strcspn(out, "\r\n") : 0] = 0;
    return out[0] ? 0 : fail(E_INVALID, "no key came on standard input");
}

static err list_keys(struct remote *r, json_t **out)
{
    AUTO_BUF path = {0};
    TRY(resource_path(r, "/credentials", &path));
    return remote_list(r, path.p, SIZE_MAX, out);
}

/* The live credential for a provider or an address; NULL if there is none. */
static const char *find_key(const json_t *rows, const char *word)
{
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *row = json_array_get(rows, i);
        const char *key = json_get_c(row, "key"), *id = json_get_c(row, "id");
        struct str url = str_of(word), origin = str_of(key ? key : "");
        bool beneath = strstr(word, "://") && origin.n && str_starts(url, origin) &&
                       (url.n == origin.n || url.p[origin.n] == '/');
        if ((key && strcmp(key, word) == 0) || (id && strcmp(id, word) == 0) || beneath)
            return id;
    }
    return NULL;
}

static err send_key(struct remote *r, const char *id, const char *secret, json_t **out)
{
    AUTO_BUF path = {0};
    const char *word = r->call->arguments[1];
    json_t *body = json_pack("{s:s}", "apiKey", secret);
    TRY(resource_path(r, "/credentials", &path));
    if (id) {
        buf_printf(&path, "/%s", id);
        return remote_send(r, "PATCH", path.p, body, out);
    }
    json_set_str(body, "kind", STR("model_provider_key"));
    json_set_str(body, strstr(word, "://") ? "baseUrl" : "provider", str_of(word));
    return remote_send(r, "POST", path.p, body, out);
}

static err set_work(struct remote *r)
{
    char secret[KEY_MAX + 2] = "";
    AUTO_JSON rows = NULL;
    AUTO_JSON credential = NULL;
    TRY(list_keys(r, &rows));
    const char *id = find_key(rows, r->call->arguments[1]);
    err e = read_key(secret);
    if (!e)
        e = send_key(r, id, secret, &credential);
    secret_wipe(secret, sizeof secret);
    TRY(e);
    if (remote_json(r))
        remote_print(credential);
    else
        printf("%s %s for %s\n", json_get_c(credential, "id"), id ? "replaced" : "added",
               json_get_c(credential, "key"));
    return 0;
}

static int set_key(const struct invocation *call)
{
    return remote_run(call, set_work);
}

/* The credential that the command means: its id, and its path. */
static err key_path(struct remote *r, char out_id[ID_MAX], struct buf *out)
{
    AUTO_JSON rows = NULL;
    TRY(list_keys(r, &rows));
    const char *id = find_key(rows, r->call->arguments[1]);
    if (id == NULL)
        return fail(E_NOT_FOUND,
                    "the vault has no key for %.80s (pi-managed vault keys shows them)",
                    r->call->arguments[1]);
    snprintf(out_id, ID_MAX, "%s", id);
    TRY(resource_path(r, "/credentials/", out));
    buf_add_c(out, id);
    return 0;
}

static err unset_work(struct remote *r)
{
    AUTO_BUF path = {0};
    AUTO_JSON credential = NULL;
    char id[ID_MAX];
    TRY(key_path(r, id, &path));
    TRY(remote_send(r, "DELETE", path.p, NULL, &credential));
    if (remote_json(r))
        remote_print(credential);
    else
        printf("%s destroyed\n", id);
    return 0;
}

static int unset_key(const struct invocation *call)
{
    return remote_run(call, unset_work);
}

/* What is spoken at an address is known to whoever uses it, not to the vault. */
static json_t *check_body(const struct invocation *call)
{
    const char *word = call->arguments[1];
    if (strstr(word, "://") == NULL)
        return json_object();
    return json_pack("{s:s, s:s}", "api", option_value(call, "api"), "baseUrl", word);
}

static err check_work(struct remote *r)
{
    AUTO_BUF path = {0};
    AUTO_JSON result = NULL;
    char id[ID_MAX];
    TRY(key_path(r, id, &path));
    buf_add_c(&path, "/validate");
    TRY(remote_send(r, "POST", path.p, check_body(r->call), &result));
    const char *status = json_get_c(result, "status"), *reason = json_get_c(result, "reason");
    r->status = status && strcmp(status, "valid") == 0 ? 0 : 1;
    if (remote_json(r))
        remote_print(result);
    else
        printf("%s %s%s%s\n", id, status, reason ? ": " : "", reason ? reason : "");
    return 0;
}

static int check_key(const struct invocation *call)
{
    return remote_run(call, check_work);
}

static err keys_work(struct remote *r)
{
    AUTO_JSON rows = NULL;
    TRY(list_keys(r, &rows));
    for (size_t i = 0; remote_json(r) && i < json_array_size(rows); i++)
        remote_print(json_array_get(rows, i));
    if (!remote_json(r))
        table_print(rows, key_columns);
    return 0;
}

static int keys(const struct invocation *call)
{
    return remote_run(call, keys_work);
}

/* ---- the verbs ---- */

const struct command vault_create_command = {
    .name = "vault create",
    .arguments = "NAME",
    .summary = "Makes a vault.",
    .options = resource_one_options,
    .run = create,
    .resource = &vault_resource,
};
const struct command vault_list_command = {
    .name = "vault list",
    .arguments = "",
    .summary = "Lists vaults, newest first.",
    .details = "The default one holds the keys of the service's environment; every session uses it "
               "last.",
    .options = resource_list_options,
    .run = resource_list,
    .resource = &vault_resource,
};
const struct command vault_set_command = {
    .name = "vault set",
    .arguments = "VAULT PROVIDER|URL",
    .summary = "Puts a model provider's key into a vault, or another in its place.",
    .details = "The key is read from standard input: pi-managed vault set team openai < key.txt",
    .options = resource_one_options,
    .run = set_key,
    .resource = &vault_resource,
};
const struct command vault_keys_command = {
    .name = "vault keys",
    .arguments = "VAULT",
    .summary = "Lists what a vault has keys for; the keys themselves are never shown.",
    .options = resource_one_options,
    .run = keys,
    .resource = &vault_resource,
};
static const struct option check_options[] = {
    {"api", "API", "openai-completions", "what is spoken at a URL"},
    OPTION_JSON,
    REMOTE_OPTIONS,
    {0},
};

const struct command vault_check_command = {
    .name = "vault check",
    .arguments = "VAULT PROVIDER|URL",
    .summary = "Tries a key at its provider: valid, invalid or unknown, and why.",
    .details = "Costs nothing. A URL is the one of an agent's model. Exit status 0 only if valid.",
    .options = check_options,
    .run = check_key,
    .resource = &vault_resource,
};
const struct command vault_unset_command = {
    .name = "vault unset",
    .arguments = "VAULT PROVIDER|URL",
    .summary = "Destroys a key in a vault.",
    .options = resource_one_options,
    .run = unset_key,
    .resource = &vault_resource,
};
const struct command vault_archive_command = {
    .name = "vault archive",
    .arguments = "VAULT",
    .summary = "Archives a vault and destroys its keys.",
    .options = resource_one_options,
    .run = resource_archive,
    .resource = &vault_resource,
};
