#include "api/budget.h"

#include "api/service.h"
#include "http/http.h"
#include "session/price.h"

const struct field budget_fields[] = {
    {.name = "maxTokens", .kinds = FIELD_INT, .nullable = true, .min = 1, .max = 1e15},
    {.name = "maxUsd", .kinds = FIELD_NUMBER, .nullable = true, .max = 1e9},
    {.name = "warnAt", .kinds = FIELD_NUMBER, .nullable = true, .max = 1},
    {0},
};

static bool is_set(const json_t *budget, const char *member)
{
    const json_t *v = json_object_get(budget, member);
    return v && !json_is_null(v);
}

void budget_check(struct fields *f, const json_t *budget)
{
    bool limited = is_set(budget, "maxTokens") || is_set(budget, "maxUsd");
    if (is_set(budget, "maxUsd") && json_get_real(budget, "maxUsd", 0) <= 0)
        fields_problem_at(f, "maxUsd", NULL, "must be more than 0");
    if (is_set(budget, "warnAt") && json_get_real(budget, "warnAt", 0) <= 0)
        fields_problem_at(f, "warnAt", NULL, "must be more than 0: the share of the budget");
    if (!limited)
        fields_problem(f, NULL, "must say maxTokens or maxUsd");
}

err budget_check_price(struct ctx *ctx, const char *agent_json)
{
    const json_t *budget = json_object_get(ctx->json, "budget");
    struct catalog_price price;
    AUTO_JSON agent = json_loads(agent_json, JSON_ALLOW_NUL, NULL);
    const json_t *model = json_object_get(agent, "model");
    if (!is_set(budget, "maxUsd") || price_find(ctx->service->catalog, model, &price))
        return 0;
    problem_add(ctx, "/budget/maxUsd", "the price of the agent's model is not known");
    return fail_as(E_INVALID, "price_unknown",
                   "the price of the agent's model is not known: give the agent model.cost, or "
                   "limit maxTokens");
}

json_t *budget_of(struct ctx *ctx)
{
    json_t *budget = json_object_get(ctx->json, "budget");
    if (!json_is_object(budget))
        return json_incref(budget);
    json_t *kept = json_object();
    const char *key;
    json_t *value;
    json_object_foreach(budget, key, value)
    {
        if (!json_is_null(value))
            json_object_set(kept, key, value);
    }
    return kept;
}

const char *budget_text(struct ctx *ctx)
{
    AUTO_JSON budget = budget_of(ctx);
    return json_is_object(budget) ? json_write_arena(budget, ctx->arena).p : NULL;
}
