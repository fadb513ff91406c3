/* The control role: the API, the sessions, the database. Started by the parent with its link on
   descriptor 3; no other descriptors, no outbound network. */
#ifndef API_CONTROL_H
#define API_CONTROL_H

/* Runs until the parent says stop (0) or something it needs cannot be had (1). */
int control_main(void);

#endif
