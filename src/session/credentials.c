#include "session/credentials.h"

#include "base/json.h"
#include "broker/dial_url.h"

struct search {
    struct arena *a;
    const char *tenant, *vault, *key; /* vault "" = the default one */
    struct str sealed;
};

static err find_key(struct db_conn *c, void *arg)
{
    static const char sql[] =
        "SELECT credentials.sealed FROM credentials JOIN vaults"
        " ON vaults.tenant_id = credentials.tenant_id AND vaults.id = credentials.vault_id"
        " WHERE credentials.tenant_id = $1 AND credentials.kind = 'model_provider_key'"
        " AND credentials.key = $2 AND credentials.archived_at IS NULL"
        " AND credentials.sealed IS NOT NULL AND vaults.archived_at IS NULL"
        " AND (vaults.id = $3 OR ($3 = '' AND vaults.is_default = 1))";
    struct search *s = arg;
    struct db_rows *r;
    TRY(db_query(c, sql, DB_ARGS(DB_C(s->tenant), DB_C(s->key), DB_C(s->vault)), &r));
    if (db_next(r))
        s->sealed = arena_str(s->a, db_str(r, 0));
    return db_rows_done(r);
}

err credential_find(struct db *db, struct arena *a, const char *tenant, const char *vault_ids_json,
                    const char *key, struct str *out_sealed)
{
    AUTO_JSON vaults = json_loads(vault_ids_json ? vault_ids_json : "[]", 0, NULL);
    struct search s = {.a = a, .tenant = tenant, .key = key};
    size_t n = json_array_size(vaults);
    for (size_t i = 0; i <= n && s.sealed.n == 0; i++) {
        const char *vault = i < n ? json_string_value(json_array_get(vaults, i)) : "";
        s.vault = vault ? vault : "";
        TRY(db_read(db, find_key, &s));
    }
    *out_sealed = s.sealed;
    return 0;
}

err credential_for_provider(struct db *db, struct arena *a, const char *tenant,
                            const char *vault_ids_json, const char *provider,
                            struct str *out_sealed)
{
    struct str sealed;
    TRY(credential_find(db, a, tenant, vault_ids_json, provider, &sealed));
    if (sealed.n == 0)
        return fail_as(E_UNAVAILABLE, "credential_missing",
                       "no key for the model provider %s: start the service with its variable set "
                       "(like ANTHROPIC_API_KEY), or put a key into a vault of the session "
                       "(pi-managed vault create VAULT, vault set VAULT %s, run --vault VAULT)",
                       provider, provider);
    *out_sealed = sealed;
    return 0;
}

err credential_origin(const char *url, struct arena *a, const char **out)
{
    struct dial_url u;
    TRY(dial_parse(str_of(url), a, &u));
    bool usual = u.port == (strcmp(u.scheme, "https") == 0 ? 443 : 80);
    bool v6 = strchr(u.host, ':') != NULL;
    const char *host = arena_printf(a, v6 ? "[%s]" : "%s", u.host);
    *out = usual ? arena_printf(a, "%s://%s", u.scheme, host)
                 : arena_printf(a, "%s://%s:%d", u.scheme, host, u.port);
    return 0;
}
