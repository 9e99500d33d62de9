/* api_rate: what one may use per minute: a bucket that fills steadily and holds a minute's worth.
 *
 * What something costs is known when it is done, so a bucket may go below zero: who has used more than there was waits
 * until that is made up for. Time is an argument (base/clock.h), so nothing here waits.
 * Thread: one owner.   Memory: a plain value. */
#ifndef KVICK_API_API_RATE_H
#define KVICK_API_API_RATE_H

#include <stdint.h>

struct api_rate {
    double per_minute; /* 0: any amount */
    double level;      /* at at_ns; at most per_minute */
    int64_t at_ns;
};

/* Full. */
void api_rate_init(struct api_rate *rate, double per_minute, int64_t now_ns);

/* Another limit; what was used is kept in mind. */
void api_rate_change(struct api_rate *rate, double per_minute, int64_t now_ns);

/* Until something may begin; 0: now. */
int64_t api_rate_wait_ns(const struct api_rate *rate, int64_t now_ns);

/* So much was used. */
void api_rate_use(struct api_rate *rate, double amount, int64_t now_ns);

#endif
