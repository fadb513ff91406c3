#include "session/asks.h"

#include "base/id.h"
#include "base/mem.h"
#include "session/live.h"

#include <stdio.h>

/* A host that tells nonsense gets no order, and nothing else. */
#define WAITING_MAX 10000

struct ask {
    struct ask *next;
    char session[ID_MAX];
    char request[ID_MAX * 2];
    int64_t input_tokens;
    int64_t said;
};

struct asks {
    struct session_manager *m;
    pthread_mutex_t lock; /* guards what follows; held while a request is posted, so that its end
                             cannot overtake it */
    struct ask *first;
    unsigned count;
};

struct asks *asks_new(struct session_manager *m)
{
    struct asks *a = mem_alloc(sizeof *a);
    *a = (struct asks){.m = m};
    pthread_mutex_init(&a->lock, NULL);
    return a;
}

static void tell(struct asks *a, const char *session, const char *request, int64_t input_tokens)
{
    manager_post_input(
        a->m, session,
        &(struct turn_input){.kind = TURN_REQUEST_BEGIN, .id = request, .number = input_tokens},
        false);
}

/* In the order in which they came. With the lock held, as those below. */
static void add_last(struct asks *a, struct ask *ask)
{
    struct ask **at = &a->first;
    while (*at)
        at = &(*at)->next;
    *at = ask;
    a->count++;
}

static void take_out(struct asks *a, struct ask **at)
{
    struct ask *gone = *at;
    *at = gone->next;
    a->count--;
    mem_free(gone);
}

void asks_begin(struct asks *a, const char *session, const char *request, int64_t input_tokens,
                int64_t said)
{
    AUTO_LOCK(&a->lock);
    if (harness_heard(a->m->harness, session) >= said || a->count >= WAITING_MAX) {
        tell(a, session, request, input_tokens);
        return;
    }
    struct ask *ask = mem_alloc(sizeof *ask);
    *ask = (struct ask){.input_tokens = input_tokens, .said = said};
    snprintf(ask->session, sizeof ask->session, "%s", session);
    snprintf(ask->request, sizeof ask->request, "%s", request);
    add_last(a, ask);
}

void asks_end(struct asks *a, const char *session, const char *request, const json_t *end)
{
    AUTO_LOCK(&a->lock);
    for (struct ask **at = &a->first; *at; at = &(*at)->next) {
        if (strcmp((*at)->request, request) == 0) {
            take_out(a, at);
            return;
        }
    }
    manager_post_input(a->m, session,
                       &(struct turn_input){.kind = TURN_REQUEST_END, .id = request, .event = end},
                       false);
}

void asks_heard(struct asks *a)
{
    AUTO_LOCK(&a->lock);
    struct ask **at = &a->first;
    while (*at) {
        struct ask *ask = *at;
        if (harness_heard(a->m->harness, ask->session) < ask->said) {
            at = &ask->next;
            continue;
        }
        tell(a, ask->session, ask->request, ask->input_tokens);
        take_out(a, at);
    }
}

void asks_forget(struct asks *a)
{
    AUTO_LOCK(&a->lock);
    while (a->first)
        take_out(a, &a->first);
}
