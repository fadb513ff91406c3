/* What no guarded request may reach: the address ranges and names of private, local and special
   networks. Pure functions. */
#ifndef BROKER_DIAL_RANGES_H
#define BROKER_DIAL_RANGES_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>

#define DIAL_WHY_MAX 64

/* `why` (NULL: not wanted) gets the range, "10.0.0.0/8". An IPv4 address inside an IPv6 one is
   judged as itself; what is neither is denied. */
bool dial_address_denied(const struct sockaddr *sa, char why[DIAL_WHY_MAX]);
/* The rule that denies a lower-case name, "localhost" or ".internal"; NULL if none does. */
const char *dial_name_denied(const char *host);
/* A plain IPv4 or IPv6 address, not a name. */
bool dial_is_literal(const char *host);

#endif
