/* The broker's end of its link to control (protocol.h). A new descriptor replaces the old one:
   whatever the old control process had registered or asked for is void then. Any thread. */
#ifndef BROKER_CONTROL_H
#define BROKER_CONTROL_H

#include "base/err.h"
#include "base/json.h"

struct control;
struct registry;
struct request_table;

struct control *control_new(struct registry *registry, struct request_table *requests);
/* Who tries keys (protocol.h credential_check); before the first attach. Must not block. */
void control_on_check(struct control *c, void (*check)(void *arg, const json_t *message),
                      void *arg);
void control_attach(struct control *c, int take_fd);
/* E_UNAVAILABLE when there is no control. Blocks while control reads slowly. */
err control_send(struct control *c, json_t *take_message);
/* Ends the link and its thread. */
void control_free(struct control *c);

#endif
