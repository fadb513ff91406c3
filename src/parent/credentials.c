#include "parent/credentials.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/json.h"
#include "base/secret.h"
#include "parent/vault_key.h"

/* Pi's names of the variables. The first that is set for a provider counts. */
static const struct {
    const char *provider, *variable;
} variables[] = {
    {"anthropic", "ANTHROPIC_API_KEY"}, {"openai", "OPENAI_API_KEY"},
    {"google", "GEMINI_API_KEY"},       {"openrouter", "OPENROUTER_API_KEY"},
    {"groq", "GROQ_API_KEY"},           {"xai", "XAI_API_KEY"},
    {"mistral", "MISTRAL_API_KEY"},     {"deepseek", "DEEPSEEK_API_KEY"},
    {"cerebras", "CEREBRAS_API_KEY"},   {"zai", "ZAI_API_KEY"},
    {"together", "TOGETHER_API_KEY"},   {"fireworks", "FIREWORKS_API_KEY"},
    {"moonshotai", "MOONSHOT_API_KEY"}, {"minimax", "MINIMAX_API_KEY"},
    {"nvidia", "NVIDIA_API_KEY"},       {"kimi-coding", "KIMI_API_KEY"},
};
_Static_assert(sizeof variables / sizeof *variables <= ENVIRONMENT_KEYS_MAX, "room for every key");

static err seal(const unsigned char public_key[32], const char *provider, const char *tenant,
                int64_t wall_ms, const char *value, struct environment_key *out)
{
    char id[ID_MAX];
    AUTO_JSON contents = json_object();
    json_object_set_new(contents, "tenant", json_string(tenant));
    json_object_set_new(contents, "id", json_string(id_new("cred", wall_ms, id)));
    json_object_set_new(contents, "kind", json_string("model_provider_key"));
    json_object_set_new(contents, "provider", json_string(provider));
    json_set_str(contents, "secret", str_of(value));
    AUTO_BUF sealed = {0};
    TRY(vault_seal(public_key, contents, &sealed));
    if (sealed.n > sizeof out->sealed)
        return fail(E_TOO_LARGE, "the environment's key for %s is too long", provider);
    out->provider = provider;
    out->length = (uint32_t)sealed.n;
    memcpy(out->sealed, sealed.p, sealed.n);
    return 0;
}

err credentials_take(const unsigned char public_key[32], const char *tenant, int64_t wall_ms,
                     struct environment_key out[ENVIRONMENT_KEYS_MAX], size_t *out_n,
                     size_t *out_ignored)
{
    err e = 0;
    *out_n = *out_ignored = 0;
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++) {
        char *value = getenv(variables[i].variable);
        if (value == NULL)
            continue;
        if (value[0] && tenant[0] && !e)
            e = seal(public_key, variables[i].provider, tenant, wall_ms, value, &out[(*out_n)++]);
        else if (value[0])
            ++*out_ignored;
        secret_wipe(value, strlen(value)); /* /proc/<pid>/environ shows this very memory */
        unsetenv(variables[i].variable);
    }
    return e;
}

err credentials_open(const struct vault_key *key, const struct parent_credential *request,
                     struct parent_credential *reply)
{
    if (memchr(request->session, 0, sizeof request->session) == NULL ||
        (!id_valid(str_of(request->session), "sess") &&
         !id_valid(str_of(request->session), "cred")))
        return fail(E_INVALID, "a credential is opened for a session, or for itself to be tried; "
                               "this is the id of neither");
    if (request->length > sizeof request->data)
        return fail(E_INVALID, "a sealed credential of %u bytes", request->length);
    AUTO_SECRET plain = NULL;
    TRY(vault_open(key, (struct str){(const char *)request->data, request->length}, &plain));
    struct str text = secret_bytes(plain);
    memcpy(reply->session, request->session, sizeof reply->session);
    reply->length = (uint32_t)text.n; /* shorter than the box it came from */
    memcpy(reply->data, text.p, text.n);
    return 0;
}
