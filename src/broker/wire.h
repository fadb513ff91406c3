/* The wire APIs the gateway speaks: one row each, one file each (wire_<name>.c). A row says which
   requests are let through, where the key goes, how the stream tells its usage, and how the
   provider words its errors. Adding one: a file with one `const struct wire_api`, and a line in
   wire.c. */
#ifndef BROKER_WIRE_H
#define BROKER_WIRE_H

#include "base/json.h"
#include "broker/sse_reader.h"

struct wire_meter;

struct wire_api {
    const char *name;
    const char *target; /* what may be asked beneath baseUrl; '*' stands for one path segment */
    const char *target_also; /* a second form of it, or NULL */
    const char *auth_header; /* where the provider wants the key */
    const char *auth_prefix; /* "Bearer " or "" */
    const char *models;      /* beneath baseUrl: a GET that tells whether a key is good */
    const char *models_header, *models_value; /* what that GET needs besides the key, or NULL */
    /* What those who read the stream make of nonsense in it: */
    bool passes_unnamed; /* they pass over events without a name, whatever is in them */
    bool reads_last;     /* they read an event that no blank line ends */
    /* Called for each event of a stream; `data` is NULL when the text is not JSON. */
    void (*on_event)(struct wire_meter *m, struct str type, struct str text, const json_t *data);
    /* The provider's own error shape, so that Pi shows the message. New reference. */
    json_t *(*error_body)(int status, const char *code, const char *message);
};

/* R28: the four counts are disjoint; `input` excludes what was cached. */
struct wire_usage {
    int64_t input, output, cache_read, cache_write;
};

/* Follows one answer. Fed by the thread that relays it. */
struct wire_meter {
    const struct wire_api *api;
    struct sse_reader reader;
    struct wire_usage usage;
    bool has_usage;        /* the provider has told its counts so far */
    bool started;          /* the first text, thinking or tool call arrived */
    bool finished;         /* the provider said that the answer is complete */
    size_t produced_bytes; /* text, thinking and tool arguments so far */
    size_t unreadable;     /* events that should be JSON and are not */
    char fault_type[64];   /* an error inside the stream: the provider's word for it, "" if none */
    char fault_text[256];
};

/* Where this provider wants the key: the API's place for it, but for those that put their own door
   before somebody else's API. */
struct wire_auth {
    const char *header, *prefix;
};
struct wire_auth wire_auth_of(const struct wire_api *api, const char *provider);
/* NULL if the gateway does not speak it. */
const struct wire_api *wire_find(const char *name);
/* "openai-completions, anthropic-messages, …"; borrowed. */
const char *wire_names(void);
bool wire_target_allowed(const struct wire_api *api, struct str target);
/* Whether a request asks for this model and no other: the price and the budget are this model's.
   The body is not parsed, only walked: a top-level key with an escape in it is reason enough to say
   no. */
bool wire_names_model(const struct wire_api *api, struct str target, struct str body,
                      const char *model);
/* The row whose target this is, for errors to callers we know nothing of; never NULL. */
const struct wire_api *wire_of_target(struct str target);

void wire_meter_init(struct wire_meter *m, const struct wire_api *api);
void wire_meter_done(struct wire_meter *m);
void wire_meter_feed(struct wire_meter *m, struct str bytes);
/* After the whole answer: it holds something that whoever reads it will choke on. */
bool wire_meter_choked(const struct wire_meter *m);
/* For the rows: text, thinking or arguments arrived; `value` is what may hold them. */
void wire_meter_produced(struct wire_meter *m, const json_t *value);
/* For the rows: the stream holds an error object {type|code|status, message}. */
void wire_meter_fault(struct wire_meter *m, const json_t *error);

/* About how many tokens a request or an answer holds, where the provider does not say (R28). Long
   runs of base64 count as one image each. */
int64_t wire_estimate_tokens(struct str text);
/* The provider's message in the body of a failed answer; false if there is none to be found. */
bool wire_error_text(struct str body, char *out, size_t cap);
/* Member of a member, 0 when absent or negative. */
int64_t wire_count(const json_t *object, const char *key);

extern const struct wire_api wire_openai_completions;
extern const struct wire_api wire_anthropic_messages;
extern const struct wire_api wire_openai_responses;
extern const struct wire_api wire_google_generative_ai;

#endif
