#include "session/price.h"

static double per_million(int64_t tokens, double usd)
{
    return (double)tokens * usd / 1e6;
}

bool price_find(const struct catalog *catalog, const json_t *model, struct catalog_price *out)
{
    const json_t *cost = json_object_get(model, "cost");
    if (json_is_object(cost)) {
        *out = (struct catalog_price){.input = json_get_real(cost, "input", 0),
                                      .output = json_get_real(cost, "output", 0),
                                      .cache_read = json_get_real(cost, "cacheRead", 0),
                                      .cache_write = json_get_real(cost, "cacheWrite", 0),
                                      .known = true};
        return true;
    }
    const char *provider = json_get_c(model, "provider"), *id = json_get_c(model, "id");
    const struct catalog_model *known = provider && id && json_get_c(model, "baseUrl") == NULL
                                            ? catalog_find(catalog, provider, id)
                                            : NULL;
    if (known == NULL || !known->price.known)
        return false;
    *out = known->price;
    return true;
}

double price_usage(const struct catalog_price *price, const struct session_usage *u,
                   json_t *out_rates)
{
    int64_t input = u->input_tokens + u->cache_read_tokens + u->cache_creation_tokens;
    struct catalog_rates r = catalog_rates_for(price, input);
    json_object_set_new(out_rates, "input", json_real(r.input));
    json_object_set_new(out_rates, "output", json_real(r.output));
    json_object_set_new(out_rates, "cacheRead", json_real(r.cache_read));
    json_object_set_new(out_rates, "cacheWrite", json_real(r.cache_write));
    return per_million(u->input_tokens, r.input) + per_million(u->output_tokens, r.output) +
           per_million(u->cache_read_tokens, r.cache_read) +
           per_million(u->cache_creation_tokens, r.cache_write);
}
