/* The broker role: the only process that dials out. Descriptor 3 is the link to the parent. */
#ifndef BROKER_BROKER_H
#define BROKER_BROKER_H

/* Runs until the parent is gone. Logging is set up by the caller. */
int broker_main(void);

#endif
