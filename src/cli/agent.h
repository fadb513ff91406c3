/* What of an agent can be said in options: for agent create and update, and for commands that make
   one on the way (run, session create). */
#ifndef CLI_AGENT_H
#define CLI_AGENT_H

#include "cli/remote.h"

#define MODEL_OPTIONS                                                                              \
    {"model", "PROVIDER/ID", NULL, "of Pi's catalogue: anthropic/claude-opus-5-5"},                \
        {"thinking", "LEVEL", NULL, "off, minimal, low, medium, high, xhigh or max"},              \
        {"api", "API", NULL,                                                                       \
         "another server than the catalogue's: anthropic-messages, openai-completions, "           \
         "openai-responses or google-generative-ai"},                                              \
    {                                                                                              \
        "base-url", "URL", NULL, "where that server is; see serve --allow-private"                 \
    }

/* Sets body.model from the MODEL_OPTIONS; leaves the body alone when none is given. */
err agent_model_options(const struct invocation *call, json_t *body);

#endif
