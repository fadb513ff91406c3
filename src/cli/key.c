/* pi-managed key: rows in the database; the service may be running meanwhile. */
#include <stdio.h>
#include <string.h>

#include "api/keys.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/secret.h"
#include "cli/command.h"
#include "cli/database.h"

#define TENANT_OPTION                                                                              \
    {                                                                                              \
        "tenant", "ID", NULL, "needed when there are several"                                      \
    }
#define LIST_MAX 1000

static int64_t now(void)
{
    return clock_wall_ms(clock_real());
}

/* --tenant, or the only one there is. */
static err choose_tenant(struct db_conn *c, const char *wanted, char out[ID_MAX])
{
    if (wanted) {
        if (!id_valid(str_of(wanted), "tenant"))
            return fail(E_INVALID, "--tenant %s is no tenant id. See: pi-managed tenant list",
                        wanted);
        snprintf(out, ID_MAX, "%s", wanted);
        return 0;
    }
    AUTO_ARENA a = arena_new();
    struct tenant_row *rows = NULL;
    size_t n = 0;
    TRY(tenant_list(c, a, &rows, &n));
    if (n != 1)
        return fail(E_INVALID, n ? "there are several tenants: say which with --tenant"
                                 : "there is no tenant. Run: pi-managed init");
    snprintf(out, ID_MAX, "%s", rows[0].id);
    return 0;
}

struct key_call {
    const struct invocation *call;
    struct key_new key;
};

static err create_key(struct db_conn *c, void *arg)
{
    struct key_call *k = arg;
    TRY(choose_tenant(c, option_value(k->call, "tenant"), k->key.tenant));
    return key_insert(c, &k->key);
}

static err run_key_create(const struct invocation *call)
{
    struct key_call k = {.call = call};
    const char *word = option_value(call, "scope");
    enum http_scope scope = key_scope_of(str_of(word));
    if (scope == SCOPE_NONE)
        return fail(E_INVALID, "--scope %s: give read, write or admin", word);
    TRY(key_draw("", option_value(call, "name"), scope, now(), &k.key));
    err e = database_write(call, create_key, &k);
    if (!e && option_flag(call, "json"))
        database_print(json_pack("{s:s, s:s, s:s}", "id", k.key.id, "tenantId", k.key.tenant,
                                 "apiKey", k.key.token));
    else if (!e)
        printf("%s   (shown once)\n", k.key.token);
    secret_wipe(&k, sizeof k);
    return e;
}

static void print_key(const struct invocation *call, const struct key_row_shown *row)
{
    char at[CLOCK_TEXT_MAX];
    bool revoked = row->revoked_at_ms >= 0;
    clock_format(row->created_at_ms, at);
    if (!option_flag(call, "json")) {
        printf("%s  …%s  %-5s  %s  %s%s\n", row->id, row->last4, row->scope, at, row->name,
               revoked ? "  (revoked)" : "");
        return;
    }
    json_t *j = json_pack("{s:s, s:s, s:s, s:s, s:s}", "id", row->id, "name", row->name, "scope",
                          row->scope, "last4", row->last4, "createdAt", at);
    json_set_time(j, "revokedAt", row->revoked_at_ms);
    database_print(j);
}

static err list_keys(struct db_conn *c, void *arg)
{
    const struct invocation *call = arg;
    char tenant[ID_MAX];
    TRY(choose_tenant(c, option_value(call, "tenant"), tenant));
    AUTO_ARENA a = arena_new();
    struct key_row_shown *rows = NULL;
    size_t n = 0;
    struct key_filter filter = {.ascending = true, .limit = LIST_MAX};
    TRY(key_list(c, a, tenant, &filter, &rows, &n));
    for (size_t i = 0; i < n; i++)
        print_key(call, &rows[i]);
    return 0;
}

static err revoke_key(struct db_conn *c, void *arg)
{
    const struct invocation *call = arg;
    char tenant[ID_MAX];
    TRY(choose_tenant(c, option_value(call, "tenant"), tenant));
    return key_revoke(c, tenant, str_of(call->arguments[0]), now());
}

static int finish(const struct invocation *call, err e)
{
    return e ? command_fail(call) : 0;
}

static int key_create_run(const struct invocation *call)
{
    return finish(call, run_key_create(call));
}

static int key_list_run(const struct invocation *call)
{
    return finish(call, database_write(call, list_keys, (void *)call));
}

static int key_revoke_run(const struct invocation *call)
{
    return finish(call, database_write(call, revoke_key, (void *)call));
}

static const struct option create_options[] = {
    OPTION_DATA,
    TENANT_OPTION,
    {"name", "NAME", "unnamed", "what it is for"},
    {"scope", "SCOPE", "admin", "read, write or admin"},
    OPTION_JSON,
    {0},
};
static const struct option key_options[] = {OPTION_DATA, TENANT_OPTION, OPTION_JSON, {0}};

const struct command key_create_command = {
    .name = "key create",
    .arguments = "",
    .summary = "Makes an API key and prints it, once.",
    .options = create_options,
    .run = key_create_run,
};
const struct command key_list_command = {
    .name = "key list",
    .arguments = "",
    .summary = "Lists a tenant's API keys.",
    .options = key_options,
    .run = key_list_run,
};
const struct command key_revoke_command = {
    .name = "key revoke",
    .arguments = "KEY-ID",
    .summary = "Revokes an API key; the running service follows within a second.",
    .options = key_options,
    .run = key_revoke_run,
};
