/* What a session may spend (R27), and its tenant (R53): checked before every attempt of a model
   request, with what the request may take counted as spent. A request under way may finish. */
#include "session/turn_state.h"

#include "base/mem.h"

#include <stdio.h>

/* Reaches the host: nothing that Pi would try again. */
static const char used_up_text[] = "The budget is used up.";

void budget_set(struct turn *t, const json_t *budget)
{
    t->budget.max_tokens = json_get_int(budget, "maxTokens", 0);
    t->budget.max_usd = json_get_real(budget, "maxUsd", 0);
    t->budget.warn_at = json_get_real(budget, "warnAt", 0);
    t->budget.warned = false;
}

static int64_t tokens_of(const struct session_usage *u)
{
    return u->input_tokens + u->output_tokens + u->cache_read_tokens + u->cache_creation_tokens;
}

/* What a request of so many tokens may cost at least. If the last one left something in the
   provider's cache it is taken to be there still. */
static double cost_of_input(struct turn *t, int64_t input_tokens)
{
    int64_t cached = t->budget.cached_tokens;
    struct session_usage u = {.cache_read_tokens = cached < input_tokens ? cached : input_tokens};
    u.input_tokens = input_tokens - u.cache_read_tokens;
    AUTO_JSON price = json_object();
    bool known = false;
    double usd = t->o.price(t->o.price_arg, &u, price, &known);
    return known ? usd : 0;
}

static void remember(struct turn *t, const char *code, const char *text)
{
    mem_free(t->budget.text);
    t->budget.code = code;
    t->budget.text = mem_strdup(text);
}

/* Whether `tokens` and `usd` more are beyond the session's budget; then says so. */
static bool is_beyond(struct turn *t, int64_t tokens, double usd)
{
    char text[300];
    const struct budget *b = &t->budget;
    int64_t used = tokens_of(&t->usage);
    if (b->max_tokens > 0 && (used >= b->max_tokens || used + tokens > b->max_tokens)) {
        snprintf(text, sizeof text,
                 "The session has used %lld of the %lld tokens of its budget, and the next request "
                 "takes about %lld. Raise the budget to let it go on.",
                 (long long)used, (long long)b->max_tokens, (long long)tokens);
    } else if (b->max_usd > 0 &&
               (t->usage.cost_usd >= b->max_usd || t->usage.cost_usd + usd > b->max_usd)) {
        snprintf(text, sizeof text,
                 "The session has used $%.4f of the $%.4f of its budget, and the next request "
                 "costs at least $%.4f. Raise the budget to let it go on.",
                 t->usage.cost_usd, b->max_usd, usd);
    } else {
        return false;
    }
    remember(t, "budget_exhausted", text);
    return true;
}

bool budget_is_used_up(struct turn *t)
{
    return is_beyond(t, 0, 0);
}

const char *budget_refuses(struct step *s, int64_t input_tokens)
{
    struct turn *t = s->t;
    double usd = cost_of_input(t, input_tokens);
    if (is_beyond(t, input_tokens, usd))
        return used_up_text;
    struct err_slot saved;
    err_save(&saved);
    bool refused = t->o.reserve && t->o.reserve(t->o.spend_arg, s->now_ms, usd) != 0;
    if (refused)
        remember(t, "tenant_budget_exhausted", err_text());
    err_restore(&saved);
    return refused ? used_up_text : NULL;
}

/* Once for each budget, when the share of it that warnAt names is spent. */
static void warn(struct step *s)
{
    struct turn *t = s->t;
    struct budget *b = &t->budget;
    bool tokens =
        b->max_tokens > 0 && (double)tokens_of(&t->usage) >= b->warn_at * (double)b->max_tokens;
    bool usd = b->max_usd > 0 && t->usage.cost_usd >= b->warn_at * b->max_usd;
    if (b->warned || b->warn_at <= 0 || !(tokens || usd))
        return;
    b->warned = true;
    step_event(s, json_pack("{s:s, s:I, s:f}", "type", "session.budget_warning", "tokens",
                            (json_int_t)tokens_of(&t->usage), "costUsd", t->usage.cost_usd));
}

void budget_spent(struct step *s, double usd)
{
    struct turn *t = s->t;
    if (t->o.settle)
        t->o.settle(t->o.spend_arg, usd);
    warn(s);
}

void budget_note_end(struct turn *t, const char *stop_type)
{
    t->budget.ended_turn = stop_type && strcmp(stop_type, "budget_exhausted") == 0;
    /* One that ended before it began leaves the run that was cut off before it as it is. */
    t->budget.cut_run = t->budget.ended_turn && (t->begun || t->budget.cut_run);
}

void budget_finish(struct step *s)
{
    struct turn *t = s->t;
    step_error(s, t->budget.code, t->budget.text, "terminal");
    t->budget.code = NULL;
    turn_finish(s, "budget_exhausted");
}

void budget_changed(struct step *s, const json_t *budget)
{
    struct turn *t = s->t;
    budget_set(t, budget);
    if (t->running || !t->budget.ended_turn || budget_is_used_up(t)) {
        t->budget.code = t->running ? t->budget.code : NULL;
        return;
    }
    t->resuming = true; /* where it was cut off */
    turn_start(s);
}
